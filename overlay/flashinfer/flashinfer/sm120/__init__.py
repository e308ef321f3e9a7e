"""What the SM120 build adds to FlashInfer: ``python -m flashinfer.sm120 doctor``.

Standard library only, and nothing is imported here: the doctor has to work
where torch, a driver or FlashInfer's own modules do not.
"""
