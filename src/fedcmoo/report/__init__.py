"""Pictures and pages made from histories."""
