// Serves a store as torchrun does, asks it, and says which thread serves it.
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <filesystem>
#include <fstream>
#include <iostream>

int main() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.useLibUV = true;
  c10d::TCPStore store("127.0.0.1", options);
  store.set("key", {'v', 'a', 'l', 'u', 'e'});
  const auto answer = store.get("key");
  std::cout << "libuv " << store.isLibUvBackend() << '\n';
  std::cout << "answer " << std::string(answer.begin(), answer.end()) << '\n';
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream name(task.path() / "comm");
    std::cout << "thread " << name.rdbuf();
  }
  return 0;
}
