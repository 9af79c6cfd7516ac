"""Shop zoo: what a package of somebody else may bring to CDR Zoo, one file for each kind."""
