"""What runs inside the ranks: measures, writes facts to a journal, decides nothing."""
