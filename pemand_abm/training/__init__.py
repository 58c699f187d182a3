"""Fine-tuning: from survey households to an adapter that speaks like them.

PEMAND §3.2.3; PROTOCOLS, PEMAND 13. Examples are whole prompts of the protocol with the replies to
be learnt; only households of a survey's training split are ever used.
"""
