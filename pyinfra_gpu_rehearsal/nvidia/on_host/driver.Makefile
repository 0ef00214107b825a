# rehearsal: as NVIDIA's, it hands over to the kernel's own build.
KERNEL_UNAME ?= $(shell uname -r)
KERNEL := /lib/modules/$(KERNEL_UNAME)/build

.PHONY: modules clean
modules clean:
	$(MAKE) -C $(KERNEL) M=$(CURDIR) $@
