"""The smoke test that runs on a host: ranks under torchrun measure, the launcher judges.

It travels as one zipapp and needs Python 3.10, the host's own torch and nothing else.

* `launcher` leads a test and writes the verdict; `ranks` runs ranks under torchrun and ends them.
  They never import torch, so they live and report whatever torch does.
* `worker` is one rank: it tries its device alone (S1 to S3), then all ranks together (S4). It
  writes facts to a journal and decides nothing: a broken rank cannot be trusted to say that it is.
* `table` has a row for each check, and `check` decides them; the other modules each hold one
  subject, how it is measured and how it is judged.
* Ranks of several hosts tell each other what they wrote down once all is done, and each host's
  launcher judges all of them. Where they do not come so far it judges its own, and the controller
  puts together what the hosts say.
"""
