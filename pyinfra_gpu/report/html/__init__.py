"""`pyinfra-gpu report`: a check as one self-contained HTML page."""
