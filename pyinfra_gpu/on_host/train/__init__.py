"""`train`: starts, follows, stops and resumes training runs on one host. Runs on Python 3.10."""
