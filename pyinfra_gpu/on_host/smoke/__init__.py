"""The smoke test that runs on a host: ranks under torchrun measure, the launcher judges.

The package travels as one zipapp and needs Python 3.10 and the host's own torch, nothing else.
Two halves that share no state but files:

* the launcher (`launcher`, `stages`, `group`, `judge`, `failure`, `verdict` and others) never
  imports torch, so it lives and reports whatever torch does;
* one process a device (`single`, S1 to S3) and the ranks (`worker`, S4) measure and write facts to
  a journal; they decide nothing, because a broken one cannot be trusted to say that it is broken.
"""
