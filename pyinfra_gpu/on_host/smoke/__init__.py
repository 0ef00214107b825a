"""The smoke test that runs on a host: ranks under torchrun measure, the launcher judges.

The package travels as one zipapp and needs Python 3.10 and the host's own torch, nothing else.
It is sorted by where code runs; the parts share no state but files:

* `launcher` starts everything, follows it, ends it and writes the verdict. It never imports torch,
  so it lives and reports whatever torch does;
* `ranks` (S4, under torchrun) and the process that tries one device (`checks.single`, S1 to S3)
  measure and write facts to a journal; they decide nothing, because a broken one cannot be trusted
  to say that it is broken;
* `checks` is what the host and each device alone must be, `gpu` what GPU hosts have beside it;
* `judge` decides: pure functions of facts, which the controller uses as well.

What several of them need lies here. `ranks`, `checks`, `gpu` and `judge` know no launcher.
"""
