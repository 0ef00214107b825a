"""The launcher that runs on a host as `<prefix>/bin/train`: start, follow, stop and resume a run.

It travels as one zipapp, is run by the owner with the virtual environment's Python, and never
imports torch. By what it knows:

* `presets` and `arithmetic` are data alone: what the controller checks before it writes anything,
  and what the host resolves again when a run starts;
* `site` is what the deploy left: paths, presets, limits;
* `commands` are what a person types; they look, record and hand over;
* `running` is the supervisor, the one process that lives as long as a run does. It is a unit of
  the owner's user manager, and the unit's control group is the job.

What several of them need lies here.
"""
