"""What can score and learn here: the protocol, `ftrl`, and the River adaptor. (`logged` pClick needs no model.)"""
