#include "../../include/memwright/mark.h"
