"""What an engineer answers for: plan, show and add up releases, keep a budget, audit a mechanism, attack, draw a curve."""
