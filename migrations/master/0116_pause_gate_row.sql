INSERT IGNORE INTO pause_gate (gate, version) VALUES (1, 1)
