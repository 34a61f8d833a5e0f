// A target needs a unit; this one stands for the precompiled headers of LibTorch.cmake.
