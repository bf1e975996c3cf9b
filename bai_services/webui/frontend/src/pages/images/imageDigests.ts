import type { Item } from '../../data/entities';

/** Whether the tag of an image has another digest in the registry than the registered one. */
export function hasChangedTag(image: Item): boolean {
  const registered = image['digest'];
  const inRegistry = image['registry_digest'];
  return Boolean(registered) && Boolean(inRegistry) && registered !== inRegistry;
}
