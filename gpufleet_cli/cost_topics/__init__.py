"""The topics of `gpufleet cost`: a function each, from what its options say to a card.

Parameters are named as the options are: durations are seconds, rates as their names say. The numbers were
checked one by one before; what only shows when they meet is refused here.
"""
