"""Privacy mathematics without Lightning, in rooms by what is protected; torch only where something is trained."""
