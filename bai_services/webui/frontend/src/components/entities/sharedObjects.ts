import i18next from 'i18next';
import type { Item } from '../../data/entities';
import type { Column } from './entity';

/** The role of the user who created or last changed an object that administrators share. */
export const CHANGED_BY_ROLE: Column = {
  key: 'changed_by_role',
  isOptional: true,
  render: item => i18next.t(`roles.${String(item['changed_by_role'])}`)
};

/** Whether a user with the role `role` may change such an object. */
export const isChangeableBy = (item: Item, role: string) =>
  role === 'superadmin' || item['changed_by_role'] === 'admin';
