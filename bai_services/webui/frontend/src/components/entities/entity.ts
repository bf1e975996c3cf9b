import type { TFunction } from 'i18next';
import type { ComponentType, ReactNode } from 'react';
import type { Me } from '../../data/accounts/me';
import type { EntityPath, Item } from '../../data/entities';
import type { FilterProperty } from '../list/FilterBar';

export type Role = 'user' | 'admin' | 'superadmin' | 'monitor';

/**
 * Kind of a field, which determines its control in a form. The values of some kinds:
 *
 * - `slots`: quantities, such as `cpu=8 mem=16g`
 * - `numbers`: whole numbers by name, such as `cpu_util=5`
 * - `hosts`: storage hosts with permissions, one host per line, such as `local: mount create`
 * - `words`: a list of texts
 * - `duration`: seconds, shown as a duration such as `1h 30min`; `durations`: a list of them
 * - `reference`: the name of an object of another collection
 * - `lines`: a text with several lines
 * - `time`: a day and a time of day
 * - `suggested`: a text, for which `choices` are suggestions
 */
export type FieldKind =
  | 'text'
  | 'password'
  | 'number'
  | 'switch'
  | 'choice'
  | 'choices'
  | 'slots'
  | 'numbers'
  | 'hosts'
  | 'words'
  | 'duration'
  | 'durations'
  | 'json'
  | 'lines'
  | 'time'
  | 'suggested'
  | 'reference';

/**
 * `path`: the collection; `name`: the field that is displayed; `id`: the field whose value is
 * selected, default `name`; `within`: an additional field that is displayed if the objects differ
 * in it; `filters`: which objects can be selected, default: all.
 */
export interface Reference {
  path: EntityPath;
  name: string;
  id?: string;
  within?: string;
  filters?: Readonly<Record<string, string>>;
}

/** The projects that the user may use. */
export const USABLE_PROJECTS: Reference = {
  path: '/projects',
  name: 'name',
  id: 'id',
  within: 'domain',
  filters: { is_active: 'true' }
};

export type Bounds = readonly [least: number, most: number];

export interface Field {
  key: string;
  kind: FieldKind;
  /** Decimal places of a number; default: a whole number. */
  decimals?: number;
  choices?: readonly string[];
  /** For `reference`: the collection, and the fields that name an object. */
  of?: Reference;
  /** Whether the form shows the field; default: always. */
  isShown?: (shown: Item) => boolean;
  isRequired?: boolean;
  /** Roles that may set the field; default: the roles that may change the object. */
  writers?: readonly Role[];
  /**
   * `create`: only in the form of a new object; `change`: only in the form of an existing object.
   */
  only?: 'create' | 'change';
  /** The value that the server uses for a new object if the field is empty; shown in the field. */
  default?: string | ((me: Me) => string);
  /** Whether an empty value means "no limit" or "none", and is sent as null. */
  isNullable?: boolean;
  /** The value that means "no limit"; lists and drawers show these words instead of the value. */
  noLimit?: number | null;
  /** Smaller numbers are accepted, but the form shows the text `ENTITY.KEY-low` as a warning. */
  warnBelow?: number;
  /** The smallest and the largest valid number, or duration in seconds; for each entry of a list. */
  bounds?: (shown: Item) => Bounds;
  /** For `numbers`: the smallest and the largest valid number with a name. */
  boundsOf?: (name: string) => Bounds;
  /**
   * The label depends on the other values: the text `ENTITY.KEY-VARIANT` replaces `ENTITY.KEY`;
   * undefined: `ENTITY.KEY`.
   */
  variant?: (shown: Item) => string | undefined;
  /** For `time`: numbers of days from now that the calendar offers. */
  days?: readonly number[];
  /** Whether the field can be set for several selected objects at once. */
  isBulkEditable?: boolean;
}

/**
 * A part of a collection: the objects that match a filter. The user selects it above the list.
 */
export interface View {
  /** NAME in the text key `entities.view-NAME`. */
  name: string;
  filter: string;
  value: string;
}

export interface Column {
  key: string;
  isSortable?: boolean;
  isOptional?: boolean;
  /** Whether the column contains sentences; it does not shrink to the width of a word. */
  hasSentences?: boolean;
  /** Whether times are shown with seconds. */
  isExact?: boolean;
  /** See `Field`. */
  noLimit?: number | null;
  render?: (item: Item) => ReactNode;
}

/** A collection: the columns and fields of its page, and the roles that may change it. */
export interface Entity {
  /**
   * Prefix of the translation keys (the file `i18n/LANGUAGE/NAME.json`): `NAME.title`,
   * `NAME.create`, and `NAME.KEY` for each column and field.
   */
  name: string;
  path: EntityPath;
  /** The field that identifies an object in the API. */
  id: string;
  defaultSort: string;
  /** Interval at which the list is read again; default: it is not polled. */
  refreshMillis?: number;
  /** Width of the drawer in pixels; default: 640. */
  drawerWidth?: number;
  columns: readonly Column[];
  filters: readonly Omit<FilterProperty, 'title'>[];
  fields: readonly Field[];
  /** Roles that may create, change and delete objects. */
  writers: readonly Role[];
  /** Whether a user with the role `role`, one of `writers`, may change `item`; default: yes. */
  isWritable?: (item: Item, role: string) => boolean;
  canCreate: boolean;
  canDelete: boolean;
  /**
   * Whether the object can be deleted now; if not, `NAME.delete-refused` is the text with the
   * reason.
   */
  isDeletable?: (item: Item) => boolean;
  /** Rendered in the form of a new object, to fill in fields. */
  Prefill?: ComponentType;
  /** Whether there is no drawer, because the list shows all fields. */
  hasNoDetails?: boolean;
  views?: readonly View[];
  /** Further actions on several selected objects; `onDone` gets the keys that stay selected. */
  BulkActions?: ComponentType<BulkActionsProps>;
  /** The field that activates and deactivates an object, with its two values. */
  activation?: Activation;
}

export interface BulkActionsProps {
  selected: readonly string[];
  onDone: (selected: string[]) => void;
}

export interface Activation {
  key: string;
  on: unknown;
  off: unknown;
}

export const BY_FLAG: Activation = { key: 'is_active', on: true, off: false };

/** The active and the inactive objects. */
export const activationViews = ({ key, on, off }: Activation): readonly View[] => [
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

/** The key of the label of a field in a form with these values. */
export const fieldLabelKey = (entity: Entity, field: Field, shown: Item) =>
  [labelKey(entity, field.key), field.variant?.(shown)].filter(Boolean).join('-');

/** The text of a choice of a field; default: the choice itself. */
export const choiceText = (t: TFunction, entity: Entity, field: Field, choice: string) =>
  t(`${labelKey(entity, field.key)}-${choice}`, choice);

/** The text of an action for this collection; default: the general text of the action. */
export const actionText = (
  t: TFunction,
  entity: Entity,
  key: string,
  values: Record<string, string | number> = {}
) => t([`${entity.name}.${key}`, `entities.${key}`], values);

export const idOf = (entity: Entity, item: Item) => String(item[entity.id]);

/** Whether a role may change an object. */
export const canWrite = (entity: Entity, item: Item, role: string | undefined) =>
  role !== undefined &&
  entity.writers.some(writer => writer === role) &&
  (entity.isWritable?.(item, role) ?? true);

/**
 * Whether a user with the role `role` may change an object whose owner has the role `item.role`.
 * Only superadmins may change the objects of superadmins and monitors.
 */
export const isOwnerInReach = (item: Item, role: string) =>
  role === 'superadmin' || item['role'] === 'user' || item['role'] === 'admin';

/** The name of an object in texts for users: the value of the first column. */
export const nameOf = (entity: Entity, item: Item) =>
  String(item[entity.columns[0]?.key ?? entity.id]);
