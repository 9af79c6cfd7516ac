"""Privacy mathematics without Lightning, by what is protected; torch only where something is trained."""
