# rehearsal: what `make -C /lib/modules/K/build M=DIR modules` is on a real machine, for the
# sources of the simulated driver. VERMAGIC and the release stand in include/vermagic.
VERMAGIC := $(shell cat $(CURDIR)/include/vermagic)

.PHONY: modules clean
modules:
	$(MAKE) -C $(M) -f Kbuild objects VERMAGIC='$(VERMAGIC)'

clean:
	rm -f $(M)/*.ko $(M)/*.o
