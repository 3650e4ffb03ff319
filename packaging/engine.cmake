# Included by cmake when the engine's wheel is built (CMAKE_PROJECT_INCLUDE).
# The wheel holds llama, ggml and mtmd alone. llama-cpp-python forces llama.cpp's common library into the cache, which is
# two thirds of what is compiled and used by llama.cpp's own programs only; a plain variable comes before the cache.
set(LLAMA_BUILD_COMMON OFF)
