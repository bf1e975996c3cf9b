import { Button, Descriptions, Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';
import { meQuery } from '../../data/accounts/me';
import { UserText } from '../../components/UserText';
import { OneTimeCodes } from './OneTimeCodes';

/** Account data of the user, links to the Hub's pages for password and tokens, one-time codes. */
export function Account() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
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
        <Button href={`${config.hub}change-password`}>{t('settings.change-password')}</Button>
        <Button href={`${config.hub}token`}>{t('settings.tokens')}</Button>
      </Flex>
      <OneTimeCodes />
    </>
  );
}
