import type { ReactNode } from 'react';
import type { EntityPath, Item } from '../../data/entities';
import type { FilterProperty } from '../FilterBar';

export type Role = 'user' | 'admin' | 'superadmin' | 'monitor';

/** How a field is entered.
 *
 * `slots` are quantities such as `cpu=8 mem=16g`, `hosts` lines such as `local: mount create`,
 * `words` a list of texts, and `reference` the name of an object of another collection.
 */
export type FieldKind =
  | 'text'
  | 'password'
  | 'number'
  | 'switch'
  | 'choice'
  | 'choices'
  | 'slots'
  | 'hosts'
  | 'words'
  | 'json'
  | 'reference';

export interface Field {
  key: string;
  kind: FieldKind;
  choices?: readonly string[];
  /** For `reference`: the collection, and the field that names an object. */
  of?: { path: EntityPath; name: string };
  isRequired?: boolean;
  /** Roles that may set it; those that may change the object by default. */
  writers?: readonly Role[];
  /** `create`: it cannot be changed later; `change`: it is set after the creation. */
  only?: 'create' | 'change';
  /** Whether an empty value means "no limit" or "none", and is sent as null. */
  isNullable?: boolean;
}

export interface Column {
  key: string;
  isSortable?: boolean;
  isOptional?: boolean;
  render?: (item: Item) => ReactNode;
}

/** A collection: what its page shows, and what may be changed by whom. */
export interface Entity {
  /** Area of its texts: `NAME.title`, `NAME.create`, `NAME.KEY` of each column and field. */
  name: string;
  path: EntityPath;
  /** The field that identifies an object in the API. */
  id: string;
  defaultSort: string;
  columns: readonly Column[];
  filters: readonly Omit<FilterProperty, 'title'>[];
  fields: readonly Field[];
  /** Roles that may create, change and delete. */
  writers: readonly Role[];
  canCreate: boolean;
  canDelete: boolean;
}

export const labelKey = (entity: Entity, key: string) =>
  `${entity.name}.${key.replaceAll('_', '-')}`;

export const idOf = (entity: Entity, item: Item) => String(item[entity.id]);
