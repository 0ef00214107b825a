"""The process that runs torchrun, has the facts judged and writes the verdict; no torch in it."""
