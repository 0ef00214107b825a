/* rehearsal: a kernel module that no kernel loads, with what modinfo reads of a real one.
 * -DNAME="nvidia" -DVERSION="..." -DLICENSE="..." -DDEPENDS="" -DVERMAGIC="..." -DALIAS="..."
 */
#define FIELD(id, text) \
  __attribute__((used, section(".modinfo"))) static const char field_##id[] = text

FIELD(license, "license=" LICENSE);
FIELD(description, "description=rehearsal: drives simulated GPUs");
#ifdef VERSION
FIELD(version, "version=" VERSION);
FIELD(supported, "supported=external");
#endif
#ifdef ALIAS
FIELD(alias, "alias=" ALIAS);
#endif
FIELD(depends, "depends=" DEPENDS);
FIELD(name, "name=" NAME);
FIELD(vermagic, "vermagic=" VERMAGIC);

int init_module(void) { return 0; }
void cleanup_module(void) {}
