import type { Item } from '../../data/entities';

/** Whether the digest of a tag in the registry differs from the registered digest of the image. */
export function hasChangedTag(image: Item): boolean {
  const registered = image['digest'];
  const inRegistry = image['registry_digest'];
  return Boolean(registered) && Boolean(inRegistry) && registered !== inRegistry;
}
