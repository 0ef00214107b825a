/* The simulated libnvidia-ptxjitcompiler.so.VERSION: there to be found, nothing calls it. */
const char *rehearsal_ptxjit_version(void) { return VERSION; }
