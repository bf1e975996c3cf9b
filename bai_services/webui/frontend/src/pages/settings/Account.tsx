import { useState } from 'react';
import { Button, Descriptions, Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';
import { meQuery } from '../../data/accounts/me';
import { UserText } from '../../components/UserText';
import { FullNameDialog } from './FullNameDialog';
import { OneTimeCodes } from './OneTimeCodes';

/** Account data of the user with the editable full name, links to the Hub, and one-time codes. */
export function Account() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const [isEditing, setIsEditing] = useState(false);
  if (!me) {
    return null;
  }
  const facts = [
    ['user-name', me.username],
    ['full-name', me.full_name],
    ['email', me.email],
    ['role', t(`roles.${me.role}`)],
    ['domain', me.domain],
    ['projects', me.projects.map(({ name }) => name).join(', ')]
  ] as const;
  return (
    <>
      <Descriptions
        bordered
        size="small"
        column={1}
        style={{ maxWidth: 760, marginBottom: 16 }}
        items={facts.map(([key, value]) => ({
          key,
          label: t(`settings.${key}`),
          children: value ? <UserText text={value} /> : '–'
        }))}
      />
      <Flex wrap gap="small">
        <Button onClick={() => setIsEditing(true)}>{t('settings.edit-name')}</Button>
        <Button href={`${config.hub}change-password`}>{t('settings.change-password')}</Button>
        <Button href={`${config.hub}token`}>{t('settings.tokens')}</Button>
      </Flex>
      <OneTimeCodes />
      {isEditing && (
        <FullNameDialog userId={me.id} initial={me.full_name} onClose={() => setIsEditing(false)} />
      )}
    </>
  );
}
