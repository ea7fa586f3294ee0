"""Packed weights on a processor: int8 and int4 in place of bfloat16.

Writing a token reads every weight once, so fewer bytes a weight are fewer seconds a token. Imports torch.

packed_model -> trial            what is quicker on this machine, measured once and kept
             -> conversion       packs a loaded model, layer by layer, into a file
             -> packed_file      writes and checks that file, and maps it
             -> linear           the layers that take the place of nn.Linear
             -> packing          weights to integers with scales, and back
"""
