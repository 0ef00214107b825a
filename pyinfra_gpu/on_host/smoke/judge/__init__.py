"""How the smoke test judges: pure functions of facts, for the launcher and for the controller."""
