"""`pyinfra-gpu check`: is every host still as declared? Read-only, with an honest exit code."""
