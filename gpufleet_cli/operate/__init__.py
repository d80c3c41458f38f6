"""What an operator does beside reading: practice on made incidents, and later acting on a cluster."""
