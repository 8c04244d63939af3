"""The process around the loop: its clock, its second thread, its log and its memory."""
