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
  /** Smaller numbers are allowed, with the warning `NAME.KEY-low`. */
  warnBelow?: number;
  /** It can be set for several selected objects at once. */
  isShared?: boolean;
}

/** A part of a collection, chosen above the list: the objects whose `filter` is `value`. */
export interface View {
  /** Text `entities.view-NAME`. */
  name: string;
  filter: string;
  value: string;
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
  /** Objects that cannot be deleted now; the reason is the text `NAME.delete-refused`. */
  isDeletable?: (item: Item) => boolean;
  views?: readonly View[];
  /** The field that activates and deactivates an object, with its two values. */
  activation?: Activation;
}

export interface Activation {
  key: string;
  on: unknown;
  off: unknown;
}

export const BY_FLAG: Activation = { key: 'is_active', on: true, off: false };

/** The active and the inactive objects. */
export const activityViews = ({ key, on, off }: Activation): readonly View[] => [
  { name: 'active', filter: key, value: String(on) },
  { name: 'inactive', filter: key, value: String(off) }
];

/** The fields that a role may enter in a form. */
export const fieldsFor = (entity: Entity, role: string | undefined, form: 'create' | 'change') =>
  entity.fields.filter(
    field =>
      (field.only ?? form) === form &&
      (field.writers ?? entity.writers).some(writer => writer === role)
  );

export const labelKey = (entity: Entity, key: string) =>
  `${entity.name}.${key.replaceAll('_', '-')}`;

export const idOf = (entity: Entity, item: Item) => String(item[entity.id]);
