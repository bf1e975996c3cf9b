import { partsOfImage } from '../../components/imageName';
import type { SessionOptions } from '../../data/sessions/launch';

export type OfferedImage = SessionOptions['images'][number];

/** An image without its tag, and its versions. */
export interface Environment {
  name: string;
  kind: string;
  images: OfferedImage[];
}

/** Group images by environment. Images that differ only in architecture become one version. */
export function environmentsOf(images: OfferedImage[]): Environment[] {
  const environments = new Map<string, Environment>();
  for (const image of images) {
    const name = partsOfImage(image.name).environment;
    const environment = environments.get(name) ?? { name, kind: image.runtime_type, images: [] };
    environments.set(name, environment);
    const same = environment.images.findIndex(other => other.name === image.name);
    if (same < 0) {
      environment.images.push(image);
    } else {
      const other = environment.images[same] ?? image;
      const architecture = `${other.architecture}, ${image.architecture}`;
      environment.images[same] = { ...other, architecture };
    }
  }
  return [...environments.values()];
}
