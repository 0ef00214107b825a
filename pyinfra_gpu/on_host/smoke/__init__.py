"""The smoke test that runs on a host: ranks under torchrun measure, the launcher judges.

It travels as one zipapp and needs Python 3.10, the host's own torch and nothing else.

* `launcher` and `run` start everything, follow it, end it and write the verdict. They never import
  torch, so they live and report whatever torch does.
* `worker` is one process that measures: one device alone (S1 to S3), or one rank (S4). It writes
  facts to a journal and decides nothing: a broken rank cannot be trusted to say that it is broken.
* The other modules each hold one subject: how it is measured, and the checks that judge the facts.
  A check is a pure function of facts; the controller uses the same ones for a step across hosts.
"""
