"""What a person types: each command looks, says, and hands over to the run's supervisor."""
