"""The smoke test that runs on a host: ranks under torchrun measure, the launcher judges.

It travels as one zipapp and needs Python 3.10, the host's own torch and nothing else.

* `run` starts everything, follows it, ends it and writes the verdict. It never imports torch, so
  it lives and reports whatever torch does.
* `worker` is one process that measures: one device alone (S1 to S3), or one rank (S4). It writes
  facts to a journal and decides nothing: a broken rank cannot be trusted to say that it is broken.
* The other modules each hold one subject: how it is measured, and the checks that judge the facts.
  A check is a pure function of facts; the controller uses the same ones for a step across hosts.
"""
