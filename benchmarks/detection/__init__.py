"""Does the detector keep its promises? A seeded world, false alarms, power and error bars, with textbook rules beside."""
