ALTER TABLE network_request ADD KEY request_colour (colour, request_id)
