// Linked to all objects of the libraries with CUDA code (see CMakeLists.txt): every symbol has a definition.
int main() {}
