"""Events of mechanisms, and what they cost together; neither torch nor Lightning."""
