"""What an engineer answers for: plan, show and add up releases, keep a budget, audit a mechanism, draw a curve."""
