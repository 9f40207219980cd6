"""Tables, figures and a web page of recorded runs. Reads run directories; imports no torch."""
