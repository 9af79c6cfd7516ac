"""Privacy mathematics: calibration, events, accounting, noise, records, projection; neither torch nor Lightning."""
