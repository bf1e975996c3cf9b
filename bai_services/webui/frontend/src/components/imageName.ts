/** The parts of an image name such as `cr.example.com/team/python:3.11-ubuntu22.04-cuda12`. */
export interface ImageParts {
  /** The name without its tag: `cr.example.com/team/python`. */
  environment: string;
  /** The last part of the environment: `python`. */
  title: string;
  /** The first part of the tag: `3.11`. */
  version: string;
  /** The other parts of the tag: `ubuntu22.04`, `cuda12`. */
  tags: string[];
}

export function partsOfImage(name: string): ImageParts {
  const slash = name.lastIndexOf('/');
  // A colon before the last slash belongs to the port of a registry.
  const colon = name.indexOf(':', slash + 1);
  const environment = colon < 0 ? name : name.slice(0, colon);
  const [version = '', ...tags] = colon < 0 ? [] : name.slice(colon + 1).split('-');
  return { environment, title: environment.slice(slash + 1), version, tags };
}
