#include "../../../demo/grammar.cc"
